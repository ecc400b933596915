#!/usr/bin/env bash
# Succeeds when a Go toolchain that can build the local cluster (1.26 or newer) is on the PATH.
set -eu
version=$(go version 2>/dev/null | sed -n 's/^go version go\([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || exit 1
[ -n "$version" ] || exit 1
read -r major minor <<<"$version"
[ "$major" -gt 1 ] || [ "$minor" -ge 26 ]
