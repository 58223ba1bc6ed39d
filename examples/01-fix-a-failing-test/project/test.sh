#!/bin/bash
# The last line of the input has no newline, as in a file that an editor left so.
set -u
actual=$(printf '1\n2\n3' | ./total.sh)
if [ "$actual" != 6 ]; then
  echo "expected 6, got $actual"
  exit 1
fi
echo "ok"
