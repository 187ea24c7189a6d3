#!/bin/sh
# Stands in for xdfs: same words, no network. Its servers keep their root in a file named after
# their port, beside this script.
here=${0%/*}
local_path() {
  case $1 in
    xdfs://*) rest=${1#xdfs://*:}; printf '%s/%s' "$(cat "$here/root.${rest%%/*}")" "${rest#*/}";;
    *) printf '%s' "$1";;
  esac
}
verb=$1
[ "$2" = --help ] && { echo "      --protect <KIND>"; exit; }
case $verb in
  serve)
    port=$((30000 + $$ % 30000))
    while [ $# -gt 1 ]; do [ "$1" = --root ] && printf '%s' "$2" >"$here/root.$port"; shift; done
    echo "listening on 127.0.0.1:$port"
    exec sleep 300;;
  cp)
    tree=; [ "$2" = -r ] && tree=yes
    while [ $# -gt 2 ] && [ "$3" != --json ]; do shift; done
    [ "$3" = --json ] && echo '{"type":"file","bytes":1000,"seconds":0.5}'
    [ "$tree" ] && exec cp -r "$(local_path "$1")." "$(local_path "$2")"
    exec cp "$(local_path "$1")" "$(local_path "$2")";;
  perf)
    bytes=1000
    while [ $# -gt 0 ]; do [ "$1" = --bytes ] && bytes=$2; shift; done
    echo '{"type":"progress","bytes":1}'
    echo "{\"type\":\"result\",\"bytes\":$bytes,\"seconds\":0.5,\"bytes_per_second\":1,\"channels\":1000}";;
  keygen)
    while [ $# -gt 1 ]; do shift; done
    mkdir -p "${1%/*}"
    [ -n "$XDFS_CONFIG_DIR" ] && echo secret >"$1" && echo public >"$1.pub";;
  --version) echo "stand-in";;
  *) echo "error: no command $verb" >&2; exit 2;;
esac
