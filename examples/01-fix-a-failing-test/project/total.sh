#!/bin/bash
# Prints the sum of the numbers on stdin, one a line.
total=0
while read -r number; do
  total=$((total + number))
done
echo "$total"
