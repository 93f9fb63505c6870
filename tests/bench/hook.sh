#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The hook as one would write it in shell, which asks over D-Bus: for comparison only.
# $1 and what follows are as libvirt gives them: name, operation, sub-operation, extra; on stdin is the XML.
[ "$2" = prepare ] || exit 0
answer=$(busctl call org.virtguard1 /org/virtguard1 org.virtguard1.Manager Check s "$(cat)") || exit 3
case $answer in
*' "admit" '*) ;;
*) echo "$answer" >&2 && exit 1 ;;
esac
