// Tells stories: chooses people and facts, then says sentences whose places it fills. The order of a story is the opening, the facts, a
// middle of other things (as long as the story is to be), and an ending that needs the facts again.
#include "data/story.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

typedef struct Person {
    const char *name, *job, *trait, *home, *giver;
    bool woman;
    char object[STORY_PHRASE], hide[STORY_PHRASE], next_hide[STORY_PHRASE];
    const char *room;   // of `hide`
    const char *next_room;
    char debt[STORY_PHRASE], animal[STORY_PHRASE];
    const char *kind, *pet, *food, *fear, *dream, *deed, *did, *deadline, *debt_reason, *love_reason;
} Person;

typedef struct Teller {
    Story *story;
    Rng rng;
    Person people[STORY_PEOPLE];
    const char *village, *where;
    bool paragraph;         // the next sentence starts one
    const char *told[128];  // sentences that this story has used
    size_t n_told;
    size_t words;
    unsigned char filler_order[64];
    size_t n_fillers, next_filler;
} Teller;

// The people that a sentence speaks of.
typedef struct Cast {
    const Person *a, *b, *c;
} Cast;

static const char *const fact_keys[FACT_KINDS] = {"object", "debt", "promise", "love", "pet", "food", "fear", "dream"};

static size_t count_items(const StoryList *list)
{
    size_t count = 0;
    while (list->items[count] != NULL) {
        count++;
    }
    return count;
}

static const StoryList *find_list(const char *key)
{
    const StoryList *list = story_list(key, strlen(key));
    assert(list != NULL);
    return list;
}

static const char *pick(Teller *teller, const char *key)
{
    const StoryList *list = find_list(key);
    return list->items[rng_below(&teller->rng, count_items(list))];
}

// The same for sentences: one that the story has not used yet, if a few tries find one.
static const char *pick_sentence(Teller *teller, const char *key)
{
    const char *sentence = NULL;
    bool used = true;
    for (int tries = 0; tries < 8 && used; tries++) {
        sentence = pick(teller, key);
        used = false;
        for (size_t i = 0; i < teller->n_told; i++) {
            used = used || teller->told[i] == sentence;
        }
    }
    if (!used && teller->n_told < sizeof teller->told / sizeof teller->told[0]) {
        teller->told[teller->n_told++] = sentence;
    }
    return sentence;
}

// Draws `count` different numbers below n.
static void draw(Rng *rng, unsigned char *out, size_t count, size_t n)
{
    unsigned char all[64];
    assert(n <= sizeof all && count <= n);
    for (size_t i = 0; i < n; i++) {
        all[i] = (unsigned char)i;
    }
    for (size_t i = 0; i < count; i++) {
        size_t j = i + rng_below(rng, n - i);
        unsigned char chosen = all[j];
        all[j] = all[i];
        all[i] = chosen;
        out[i] = chosen;
    }
}

static void put(Teller *teller, const char *text, size_t length)
{
    Story *story = teller->story;
    assert(length < STORY_BYTES - story->length);
    memcpy(story->text + story->length, text, length);
    story->length += length;
    story->text[story->length] = 0;
}

static bool is_vowel(char letter) { return strchr("aeiouAEIOU", letter) != NULL; }

static char upper(char letter) { return letter >= 'a' && letter <= 'z' ? (char)(letter - 'a' + 'A') : letter; }

// What stands for a key such as "name" or "his" of one person; NULL when there is no such key.
static const char *person_value(const Person *person, const char *key)
{
    const struct {
        const char *key, *value;
    } table[] = {
        {"name", person->name}, {"job", person->job}, {"trait", person->trait}, {"home", person->home}, {"giver", person->giver},
        {"he", person->woman ? "she" : "he"}, {"him", person->woman ? "her" : "him"}, {"his", person->woman ? "her" : "his"},
        {"object", person->object}, {"hide", person->hide}, {"next_hide", person->next_hide}, {"room", person->room},
            {"debt", person->debt},
        {"animal", person->animal}, {"kind", person->kind}, {"pet", person->pet}, {"food", person->food}, {"fear", person->fear},
        {"dream", person->dream}, {"deed", person->deed}, {"did", person->did}, {"deadline", person->deadline},
        {"debt_reason", person->debt_reason}, {"love_reason", person->love_reason},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].key, key) == 0) {
            return table[i].value;
        }
    }
    return NULL;
}

static void expand(Teller *teller, const char *sentence, const Cast *cast);

// Fills one place, for example "a.name", "a.an_object" (with its article), "a.Food" (with a capital) or "bird" (one of a list).
static void fill_place(Teller *teller, const char *place, size_t length, const Cast *cast)
{
    char key[32];
    assert(length < sizeof key);
    memcpy(key, place, length);
    key[length] = 0;
    if (key[1] != '.') {
        const char *value = strcmp(key, "village") == 0 ? teller->village : strcmp(key, "where") == 0 ? teller->where : pick(teller, key);
        expand(teller, value, cast);
        return;
    }
    const Person *person = key[0] == 'a' ? cast->a : key[0] == 'b' ? cast->b : cast->c;
    char *name = key + 2;
    bool capital = name[0] >= 'A' && name[0] <= 'Z';
    if (capital) {
        name[0] = (char)(name[0] - 'A' + 'a');
    }
    bool article = strncmp(name, "a_", 2) == 0 || strncmp(name, "an_", 3) == 0;
    const char *value = person_value(person, article ? strchr(name, '_') + 1 : name);
    assert(value != NULL);
    if (article) {
        put(teller, is_vowel(value[0]) ? "an " : "a ", is_vowel(value[0]) ? 3 : 2);
    }
    size_t start = teller->story->length;
    expand(teller, value, cast);
    if (capital) {
        teller->story->text[start] = upper(teller->story->text[start]);
    }
}

static void expand(Teller *teller, const char *sentence, const Cast *cast)
{
    while (*sentence != 0) {
        size_t plain = strcspn(sentence, "{");
        put(teller, sentence, plain);
        sentence += plain;
        if (*sentence == '{') {
            const char *end = strchr(sentence, '}');
            assert(end != NULL);
            fill_place(teller, sentence + 1, (size_t)(end - sentence - 1), cast);
            sentence = end + 1;
        }
    }
}

// Says one item (a sentence or a few) behind what was said so far.
static void say(Teller *teller, const char *sentence, const Cast *cast)
{
    Story *story = teller->story;
    if (story->length > 0) {
        put(teller, teller->paragraph ? "\n\n" : " ", teller->paragraph ? 2 : 1);
    }
    teller->paragraph = false;
    size_t start = story->length;
    expand(teller, sentence, cast);
    if (story->text[start] == '"') {
        start++;
    }
    story->text[start] = upper(story->text[start]);
    teller->words++;
    for (size_t i = start; i < story->length; i++) {
        teller->words += story->text[i] == ' ';
    }
}

static bool chance(Teller *teller, unsigned percent) { return rng_below(&teller->rng, 100) < percent; }

// The cover's colour is drawn here, so that it is the same each time the place is named.
static void make_hide(Teller *teller, char *hide, const char *room)
{
    const char *cover = pick(teller, "cover"), *colour = pick(teller, "colour");
    const char *gap = strstr(cover, "{colour}");
    snprintf(hide, STORY_PHRASE, "%.*s%s%s in the %s", (int)(gap - cover), cover, colour, gap + strlen("{colour}"), room);
}

static void make_people(Teller *teller)
{
    static const struct {
        const char *key;
        size_t offset;
    } choices[] = {
        {"job", offsetof(Person, job)},           {"trait", offsetof(Person, trait)},     {"home", offsetof(Person, home)},
        {"giver", offsetof(Person, giver)},       {"pet", offsetof(Person, pet)},         {"food", offsetof(Person, food)},
        {"fear", offsetof(Person, fear)},         {"dream", offsetof(Person, dream)},     {"deadline", offsetof(Person, deadline)},
        {"kind", offsetof(Person, kind)},         {"room", offsetof(Person, room)},       {"love_reason", offsetof(Person, love_reason)},
        {"debt_reason", offsetof(Person, debt_reason)},
    };
    unsigned char numbers[2 * STORY_PEOPLE];
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        // "kind" is the animal of the person; the word "animal" names it together with its fur.
        const StoryList *list = find_list(strcmp(choices[i].key, "kind") == 0 ? "animal" : choices[i].key);
        draw(&teller->rng, numbers, STORY_PEOPLE, count_items(list));
        for (size_t p = 0; p < STORY_PEOPLE; p++) {
            memcpy((char *)&teller->people[p] + choices[i].offset, &list->items[numbers[p]], sizeof(const char *));
        }
    }
    const StoryList *women = find_list("woman"), *men = find_list("man"), *objects = find_list("object"), *deeds = find_list("deed"),
                    *dids = find_list("did"), *rooms = find_list("room");
    unsigned char woman[STORY_PEOPLE], man[STORY_PEOPLE], object[STORY_PEOPLE], deed[STORY_PEOPLE];
    draw(&teller->rng, woman, STORY_PEOPLE, count_items(women));
    draw(&teller->rng, man, STORY_PEOPLE, count_items(men));
    draw(&teller->rng, object, STORY_PEOPLE, count_items(objects));
    draw(&teller->rng, deed, STORY_PEOPLE, count_items(deeds));
    draw(&teller->rng, numbers, 2 * STORY_PEOPLE, count_items(rooms));
    for (size_t p = 0; p < STORY_PEOPLE; p++) {
        Person *person = &teller->people[p];
        person->woman = chance(teller, 50);
        person->name = person->woman ? women->items[woman[p]] : men->items[man[p]];
        person->deed = deeds->items[deed[p]];
        person->did = dids->items[deed[p]];
        person->room = rooms->items[numbers[p]];
        person->next_room = rooms->items[numbers[STORY_PEOPLE + p]];
        make_hide(teller, person->hide, person->room);
        make_hide(teller, person->next_hide, person->next_room);
        // One draw a statement: the order in which arguments are evaluated differs between compilers.
        const char *material = pick(teller, "material"), *fur = pick(teller, "fur"), *number = pick(teller, "number"),
            *goods = pick(teller, "goods");
        snprintf(person->object, sizeof person->object, "%s %s", material, objects->items[object[p]]);
        snprintf(person->animal, sizeof person->animal, "%s %s", fur, person->kind);
        snprintf(person->debt, sizeof person->debt, "%s %s", number, goods);
        teller->story->names[p] = person->name;
    }
}

// Everyone gets facts in turn; no one the same kind twice. The first fact is a hidden object.
static void make_facts(Teller *teller)
{
    Story *story = teller->story;
    unsigned char kinds[STORY_PEOPLE][FACT_KINDS], owners[STORY_PEOPLE];
    for (size_t p = 0; p < STORY_PEOPLE; p++) {
        draw(&teller->rng, kinds[p], FACT_KINDS, FACT_KINDS);
    }
    draw(&teller->rng, owners, story->n_people, story->n_people);
    for (size_t i = 0; i < FACT_KINDS; i++) {
        if (kinds[owners[0]][i] == FACT_OBJECT) {
            kinds[owners[0]][i] = kinds[owners[0]][0];
            kinds[owners[0]][0] = FACT_OBJECT;
        }
    }
    for (size_t i = 0; i < story->n_facts; i++) {
        StoryFact *fact = &story->facts[i];
        fact->owner = owners[i % story->n_people];
        fact->kind = kinds[fact->owner][i / story->n_people];
        fact->other = (fact->owner + 1 + rng_below(&teller->rng, story->n_people - 1)) % story->n_people;
        fact->moved = false;
        const Person *person = &teller->people[fact->owner];
        const char *answers[FACT_KINDS] = {person->hide, person->debt, strchr(person->deed, ' ') + 1, teller->people[fact->other].name,
                                           person->pet,  person->food, person->fear, person->dream};
        snprintf(fact->first_answer, sizeof fact->first_answer, "%s", answers[fact->kind]);
        memcpy(fact->answer, fact->first_answer, sizeof fact->answer);
    }
}

static void say_fact(Teller *teller, StoryFact *fact, const char *part)
{
    size_t n = teller->story->n_people, third;
    do {
        third = rng_below(&teller->rng, n);
    } while (third == fact->owner || third == fact->other);
    Cast cast = {&teller->people[fact->owner], &teller->people[fact->other], &teller->people[third]};
    char key[32];
    snprintf(key, sizeof key, "%s.%s", fact_keys[fact->kind], part);
    say(teller, pick_sentence(teller, key), &cast);
}

static void move_object(Teller *teller, StoryFact *fact)
{
    say_fact(teller, fact, "move");
    Person *owner = &teller->people[fact->owner];
    memcpy(owner->hide, owner->next_hide, sizeof owner->hide);
    owner->room = owner->next_room;
    memcpy(fact->answer, owner->hide, sizeof fact->answer);
    fact->moved = true;
}

static Cast any_two(Teller *teller)
{
    size_t n = teller->story->n_people, first = rng_below(&teller->rng, n), second = (first + 1 + rng_below(&teller->rng, n - 1)) % n;
    return (Cast){&teller->people[first], &teller->people[second], NULL};
}

// A sentence between; none is told twice in one story.
static void say_filler(Teller *teller)
{
    if (teller->next_filler < teller->n_fillers) {
        Cast cast = any_two(teller);
        say(teller, find_list("filler")->items[teller->filler_order[teller->next_filler++]], &cast);
    }
}

static void tell_opening(Teller *teller)
{
    for (size_t p = 0; p < teller->story->n_people; p++) {
        Cast cast = {&teller->people[p], NULL, NULL};
        say(teller, pick_sentence(teller, p == 0 ? "opening" : "arrival"), &cast);
    }
    teller->paragraph = true;
}

static void tell_facts(Teller *teller)
{
    for (size_t i = 0; i < teller->story->n_facts; i++) {
        say_fact(teller, &teller->story->facts[i], "early");
        if (chance(teller, 40)) {
            say_filler(teller);
        }
        if (chance(teller, 50)) {
            teller->paragraph = true;
        }
    }
    teller->paragraph = true;
}

// Fills up to `words` with other things, between which the facts are touched now and then.
static void tell_middle(Teller *teller, size_t words)
{
    Story *story = teller->story;
    while (teller->words < words && teller->next_filler < teller->n_fillers) {
        Cast cast = any_two(teller);
        if (chance(teller, 50)) {
            say(teller, pick_sentence(teller, "passage"), &cast);
        }
        for (size_t n = 1 + rng_below(&teller->rng, 3); n > 0 && teller->words < words; n--) {
            say_filler(teller);
        }
        StoryFact *fact = &story->facts[rng_below(&teller->rng, story->n_facts)];
        if (fact->kind == FACT_OBJECT && !fact->moved && chance(teller, 60)) {
            move_object(teller, fact);
        } else {
            say_fact(teller, fact, "middle");
        }
        teller->paragraph = true;
    }
}

static void tell_ending(Teller *teller)
{
    Story *story = teller->story;
    teller->paragraph = true;
    Cast cast = any_two(teller);
    story->ending = story->length;
    say(teller, pick_sentence(teller, "gathering"), &cast);
    unsigned char order[STORY_FACTS];
    draw(&teller->rng, order, story->n_facts, story->n_facts);
    for (size_t i = 0; i < story->n_facts; i++) {
        teller->paragraph = chance(teller, 60);
        say_fact(teller, &story->facts[order[i]], "late");
    }
    teller->paragraph = true;
    draw(&teller->rng, order, story->n_people, story->n_people);
    for (size_t i = 0; i < story->n_people; i++) {
        cast.a = &teller->people[order[i]];
        say(teller, pick_sentence(teller, "way_home"), &cast);
    }
    cast = any_two(teller);
    say(teller, pick_sentence(teller, "closing"), &cast);
}

void story_tell(Story *story, uint64_t seed, uint64_t index)
{
    memset(story, 0, sizeof *story);
    Teller teller = {.story = story};
    rng_seed(&teller.rng, seed, index);
    size_t words = 150 + rng_below(&teller.rng, 440);
    story->n_people = words < 280 ? 3 : 3 + rng_below(&teller.rng, 2);
    story->n_facts = words < 200 ? 2 : words < 280 ? 3 : words < 400 ? 4 + rng_below(&teller.rng, 2) : 5 + rng_below(&teller.rng, 3);
    teller.village = pick(&teller, "village");
    teller.where = pick(&teller, "where");
    teller.n_fillers = count_items(find_list("filler"));
    draw(&teller.rng, teller.filler_order, teller.n_fillers, teller.n_fillers);
    make_people(&teller);
    make_facts(&teller);
    tell_opening(&teller);
    tell_facts(&teller);
    // An ending takes about 22 words a fact and 11 a person for the way home.
    size_t ending = 25 + 22 * story->n_facts + 11 * story->n_people;
    tell_middle(&teller, words > ending ? words - ending : 0);
    tell_ending(&teller);
}
