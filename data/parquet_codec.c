// Decompression of Parquet pages. The size that must come out is known, and nothing writes beyond it.
#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "data/parquet_internal.h"

enum { CODEC_PLAIN, CODEC_SNAPPY, CODEC_GZIP, CODEC_LZO, CODEC_BROTLI, CODEC_LZ4, CODEC_ZSTD, CODEC_LZ4_RAW };

static bool unpack_snappy(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    size_t size;
    return snappy_uncompressed_length((const char *)in, in_size, &size) == SNAPPY_OK && size == out_size &&
           snappy_uncompress((const char *)in, in_size, (char *)out, &size) == SNAPPY_OK && size == out_size;
}

// gzip or zlib, also several members behind each other.
static bool unpack_gzip(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)in_size, .next_out = out, .avail_out = (uInt)out_size};
    if (inflateInit2(&stream, MAX_WBITS + 32) != Z_OK) {
        return false;
    }
    int status = inflate(&stream, Z_FINISH);
    while (status == Z_STREAM_END && stream.avail_in > 0 && stream.avail_out > 0 && inflateReset(&stream) == Z_OK) {
        status = inflate(&stream, Z_FINISH);
    }
    inflateEnd(&stream);
    return status == Z_STREAM_END && stream.avail_out == 0;
}

static bool unpack_zstd(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    size_t size = ZSTD_decompress(out, out_size, in, in_size);
    return !ZSTD_isError(size) && size == out_size;
}

static bool unpack_brotli(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    size_t size = out_size;
    return BrotliDecoderDecompress(in_size, in, &size, out) == BROTLI_DECODER_RESULT_SUCCESS && size == out_size;
}

static bool unpack_lz4_raw(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    return LZ4_decompress_safe((const char *)in, (char *)out, (int)in_size, (int)out_size) == (int)out_size;
}

static uint32_t big_endian(const unsigned char *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

// The older name LZ4 means blocks framed as Hadoop does: size unpacked, size packed, bytes.
static bool unpack_lz4_framed(const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    while (in_size >= 8) {
        size_t unpacked = big_endian(in), packed = big_endian(in + 4);
        if (packed > in_size - 8 || unpacked > out_size || !unpack_lz4_raw(in + 8, packed, out, unpacked)) {
            return false;
        }
        in += 8 + packed;
        in_size -= 8 + packed;
        out += unpacked;
        out_size -= unpacked;
    }
    return in_size == 0 && out_size == 0;
}

const char *parquet_unpack(int codec, const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size)
{
    bool good;
    if (out_size == 0) {
        return NULL;   // some writers store nothing at all for an empty page, others a packed nothing
    }
    switch (codec) {
    case CODEC_SNAPPY:
        good = unpack_snappy(in, in_size, out, out_size);
        break;
    case CODEC_GZIP:
        good = unpack_gzip(in, in_size, out, out_size);
        break;
    case CODEC_BROTLI:
        good = unpack_brotli(in, in_size, out, out_size);
        break;
    case CODEC_LZ4:
        // Some writers used the name without the frames.
        good = unpack_lz4_framed(in, in_size, out, out_size) || unpack_lz4_raw(in, in_size, out, out_size);
        break;
    case CODEC_ZSTD:
        good = unpack_zstd(in, in_size, out, out_size);
        break;
    case CODEC_LZ4_RAW:
        good = unpack_lz4_raw(in, in_size, out, out_size);
        break;
    case CODEC_LZO:
        return "LZO compression, which is not supported (supported: snappy, gzip, zstd, lz4_raw, brotli)";
    default:
        return "unknown compression";
    }
    return good ? NULL : "does not unpack to the size it promises";
}
