#!/bin/sh
# A small part of `make torture`: kills and a small file system that fills up. The full one takes minutes.
exec "$(dirname "$0")/torture" 20 4
