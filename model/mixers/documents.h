// How mixers treat packed documents (model/kernels/documents.h): each runs as a sequence of its own, from the start state and from position 0, one after the
// other within a head. So whatever counts from a sequence's first token (chunks, groups of tokens, rotary positions) counts from the document's.
//
// For its backward a forward keeps the states that stand KEPT_TOKENS or more tokens apart in a document, without the first, which is the start. However a
// sequence is cut, there are no more than one cut whole has: those of a document that begins at row `first` have their places from kept_before(first) on.
#ifndef MODEL_MIXERS_DOCUMENTS_H
#define MODEL_MIXERS_DOCUMENTS_H

#include "model/kernels/documents.h"

#define KEPT_TOKENS 32

// States that a sequence of this length keeps.
static inline size_t kept_states(size_t length) { return length > 0 ? (length - 1) / KEPT_TOKENS : 0; }

static inline size_t kept_before(size_t first) { return first / KEPT_TOKENS; }

#endif
