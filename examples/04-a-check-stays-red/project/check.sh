test "$(cat answer.txt 2>/dev/null)" = 42 || { echo "answer.txt must say 42"; exit 1; }
