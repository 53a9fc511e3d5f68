#!/bin/sh
# Starts the opscope server: the one that OPSCOPE_COMMAND names, this checkout's own, or the one on PATH.
# The project that is open, if it is a project, can be asked about as the repository "project"; its code is only read.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for program in "$OPSCOPE_COMMAND" "$here/../../.venv/bin/opscope" opscope; do
  if [ -n "$program" ] && command -v "$program" >/dev/null; then
    for sign in .git pyproject.toml setup.py; do
      if [ -e "$sign" ]; then exec "$program" serve --repo "project=$PWD"; fi
    done
    exec "$program" serve
  fi
done
echo "opscope is not installed: run 'make setup' in its checkout, or 'pipx install' it, or set OPSCOPE_COMMAND." >&2
exit 1
