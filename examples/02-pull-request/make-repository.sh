#!/bin/bash
# Makes the repository of this example in the folder named by the first argument.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.invalid
export GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.invalid
git init --quiet --initial-branch main
mkdir agent tests
cp "$here/task.yml" "$here/model.yml" "$here/ci.rules" agent/
cat > greet.sh <<'END'
#!/bin/sh
echo "Hello, ${1:-world}!"
END
cat > tests/greet.sh <<'END'
#!/bin/sh
test "$(sh greet.sh)" = "Hello, world!" || { echo "no name: $(sh greet.sh)"; exit 1; }
test "$(sh greet.sh Ada)" = "Hello, Ada!" || { echo "name: $(sh greet.sh Ada)"; exit 1; }
echo ok
END
git add --all
git commit --quiet --message 'greet: say hello'
git checkout --quiet -b change
# The pull request breaks the program, and the test that would show it.
cat > greet.sh <<'END'
#!/bin/sh
greeting=Hello
echo "$greeting, $1!"
END
echo 'exit 0' > tests/greet.sh
git commit --quiet --all --message 'greet: take the greeting from a variable'
