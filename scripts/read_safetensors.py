#!/usr/bin/env python3
"""Prints every tensor of a safetensors file: name, dtype, shape and sum. An independent reader, with nothing but the standard library.

    scripts/read_safetensors.py OUT/step_00001000/model.safetensors
"""
import array
import json
import math
import struct
import sys

FORMATS = {"F32": "f", "F64": "d", "I8": "b", "I16": "h", "I32": "i", "I64": "q", "U8": "B", "U16": "H", "U32": "I", "U64": "Q"}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] == ["--help"] else 2
    with open(sys.argv[1], "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for key, value in header.pop("__metadata__", {}).items():
            print(f"# {key} = {value}")
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            form = FORMATS.get(entry["dtype"])
            total = repr(math.fsum(array.array(form, data))) if form else "?"
            print(name, entry["dtype"], json.dumps(entry["shape"]).replace(" ", ""), total)
    return 0


sys.exit(main())
