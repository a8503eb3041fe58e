// What happens to text between the search for added tokens and merging: edits, then stages that cut, each working on the pieces of the one
// before it. A tokenizer.json calls the first "normalizer", the second "pre_tokenizer".
#ifndef TOKENIZER_PIPELINE_H
#define TOKENIZER_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pattern.h"
#include "tokenizer/pretokenize.h"

enum { MAX_EDITS = 4, MAX_STAGES = 6, DESCRIPTION_BYTES = 512 };

// Patterns that most tokenizers have.
#define PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PATTERN_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PATTERN_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_LLAMA3                                                                                                                    \
    PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" PATTERN_SPACES
#define PATTERN_QWEN2                                                                                                                     \
    PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" PATTERN_SPACES
#define PATTERN_GPT4O                                                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" PATTERN_CONTRACTIONS "?|"                 \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" PATTERN_CONTRACTIONS "?|\\p{N}{1,3}|"     \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" PATTERN_SPACES

// What becomes of matches and of what lies between them.
typedef enum Behavior { BEHAVIOR_ISOLATED, BEHAVIOR_REMOVED, BEHAVIOR_PREVIOUS, BEHAVIOR_NEXT, BEHAVIOR_CONTIGUOUS } Behavior;

typedef struct Stage {
    Pattern *pattern;        // NULL: one that is matched by hand
    PretokenPattern by_hand;
    Behavior behavior;
    bool invert;             // matches and gaps change places
} Stage;

typedef struct Pipeline {
    Edit edits[MAX_EDITS];       // before the search for added tokens that are "normalized"
    size_t n_edits;
    Edit prefixes[MAX_EDITS];    // behind it, on each piece
    size_t n_prefixes;
    Stage stages[MAX_STAGES];
    size_t n_stages;
    bool byte_level;             // symbols are bytes; else characters
    bool may_cut;                // pretokenize_cut keeps the ids
    // How tokens that are no bytes are written out:
    char space[MAX_EDIT_TEXT];   // stands for ' '; "" = nothing does
    bool strip_first;            // the space in front of a text is dropped
    char description[DESCRIPTION_BYTES];
    uint64_t hash;               // of what can change ids; 0 = byte-level BPE with GPT-2's pattern and nothing else
} Pipeline;

// Reads "normalizer", "pre_tokenizer", "post_processor" and "decoder" of a tokenizer.json. What is not supported is refused by name.
// Returns 0, or -1 with `error` set; pipeline_free is due in both cases.
int pipeline_read(Pipeline *pipeline, const cJSON *root, Error *error);
void pipeline_free(Pipeline *pipeline);

// The default: GPT-2's.
void pipeline_gpt2(Pipeline *pipeline);

#endif
