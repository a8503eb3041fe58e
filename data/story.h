// English stories for the quickstart corpus, made so that memory pays: what is said early about people (where a thing is hidden, who owes
// whom what, names of animals, promises) is needed again many sentences later. Integers only: same seed and index, same bytes everywhere.
#ifndef DATA_STORY_H
#define DATA_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORY_BYTES = 16384, STORY_PEOPLE = 4, STORY_FACTS = 7, STORY_PHRASE = 96 };

typedef enum StoryFactKind { FACT_OBJECT, FACT_DEBT, FACT_PROMISE, FACT_LOVE, FACT_PET, FACT_FOOD, FACT_FEAR, FACT_DREAM,
                            FACT_KINDS } StoryFactKind;

// A fact that is told early and asked for in the ending.
typedef struct StoryFact {
    StoryFactKind kind;
    size_t owner, other;                // people: whose fact, and the other one in it (who is owed, loved, trusted ...)
    bool moved;                         // FACT_OBJECT: the object was hidden anew in the middle of the story
    char first_answer[STORY_PHRASE];    // words that state the fact early
    char answer[STORY_PHRASE];          // words that state it in the ending; differ from first_answer only when moved
} StoryFact;

typedef struct Story {
    char text[STORY_BYTES];             // with a NUL behind it
    size_t length;
    size_t ending;                      // offset at which the ending begins
    size_t n_people, n_facts;
    const char *names[STORY_PEOPLE];
    StoryFact facts[STORY_FACTS];
} Story;

// Tells story `index` of the corpus with this seed: 150 to 700 words, paragraphs separated by an empty line.
void story_tell(Story *story, uint64_t seed, uint64_t index);

// One list of words or sentences by its key; NULL when there is none. A sentence holds places to fill: {a.name} of the people a, b, c, or
// {bird} for one of a list.
typedef struct StoryList {
    const char *key;
    const char *const *items;   // NULL behind the last
} StoryList;
const StoryList *story_list(const char *key, size_t length);

#endif
