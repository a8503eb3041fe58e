// The words and sentences that stories are made of (data/story.c fills the places in braces).
#include "data/story.h"

#include <string.h>

#define ITEMS(...) (const char *const[]){__VA_ARGS__, NULL}

static const StoryList lists[] = {
    // People.
    {"woman", ITEMS(
        "Mara", "Ada", "Nell", "Tilda", "Rosa", "Greta", "Wilma", "Hanna", "Ivy", "June", "Clara", "Dora", "Edith", "Flora",
        "Ines", "Lotte", "Olga", "Petra", "Sylvie", "Vera", "Agnes", "Birgit", "Martha", "Kira")},
    {"man", ITEMS(
        "Tobin", "Anselm", "Bruno", "Casper", "Dunstan", "Emil", "Felix", "Gregor", "Hugo", "Ivan", "Jasper", "Konrad", "Leo",
        "Matthias", "Nils", "Oskar", "Peter", "Quentin", "Rolf", "Simon", "Tom", "Ulric", "Victor", "Walter")},
    {"job", ITEMS(
        "miller", "baker", "weaver", "fisher", "shepherd", "carpenter", "potter", "tailor", "gardener", "teacher", "sailor",
        "hunter", "clockmaker", "beekeeper", "innkeeper", "painter", "blacksmith", "doctor", "musician", "cook", "mason",
        "printer", "messenger", "librarian")},
    {"trait", ITEMS(
        "patient", "cheerful", "quiet", "clever", "stubborn", "gentle", "proud", "curious", "careful", "lonely", "brave", "shy",
        "generous", "restless", "sleepy", "merry", "thoughtful", "tireless", "kind", "serious")},
    {"home", ITEMS(
        "beside the old bridge", "at the edge of the forest", "behind the chapel", "above the harbour", "near the market square",
        "at the top of the hill", "by the duck pond", "next to the town gate", "on the north road", "under the great oak",
        "across the river", "at the end of the lane", "among the apple trees", "close to the stone well", "below the castle wall",
        "at the foot of the tower", "along the canal", "near the quarry")},
    {"giver", ITEMS("grandmother", "grandfather", "aunt", "uncle", "mother", "father", "old teacher", "sister", "brother")},

    // Places.
    {"village", ITEMS(
        "Alderbrook", "Fernhill", "Greywater", "Larkfield", "Millbrook", "Thornley", "Willowmere", "Stonebridge", "Hollowdale",
        "Redmarsh", "Saltwick", "Windermoor", "Bramley", "Cloverton", "Elmsworth", "Foxhollow")},
    {"where", ITEMS(
        "between two hills", "on a slow brown river", "by the sea", "at the end of a long road", "in a deep green valley",
        "on the king's road", "on an island in the lake", "at the edge of a wide marsh")},
    {"room", ITEMS(
        "mill", "barn", "stable", "bakery", "chapel", "tower", "smithy", "library", "school", "boathouse", "greenhouse", "granary",
        "inn", "brewery", "lighthouse", "workshop", "dairy", "bathhouse", "toolshed", "town hall", "cellar", "attic")},

    // Objects and where they are hidden.
    {"material", ITEMS(
        "copper", "silver", "golden", "wooden", "ivory", "iron", "brass", "leather", "glass", "crystal", "amber", "bronze", "tin",
        "stone", "painted", "carved")},
    {"object", ITEMS(
        "key", "ring", "flute", "lantern", "compass", "bell", "mirror", "comb", "box", "crown", "spoon", "bracelet", "cup",
        "medal", "mask", "whistle", "locket", "thimble", "statue", "needle", "candlestick", "buckle", "button", "horn")},
    {"colour", ITEMS("blue", "red", "green", "yellow", "white", "black", "grey", "brown", "orange", "purple", "pink", "striped")},
    {"cover", ITEMS(
        "under the {colour} jar", "under the {colour} bench", "under the {colour} rug", "under the {colour} table",
        "under the {colour} cushion", "under the {colour} cradle", "under the {colour} bucket", "behind the {colour} barrel",
        "behind the {colour} stove", "behind the {colour} ladder", "behind the {colour} curtain", "behind the {colour} bookcase",
        "behind the {colour} clock", "behind the {colour} door", "inside the {colour} chest", "inside the {colour} basket",
        "inside the {colour} crate", "inside the {colour} sack", "inside the {colour} cupboard", "inside the {colour} trunk")},

    // What people owe, promise, keep, eat, fear and wish.
    {"number", ITEMS("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")},
    {"goods", ITEMS(
        "silver coins", "gold coins", "sacks of flour", "jars of honey", "bundles of firewood", "rolls of cloth",
        "baskets of apples", "barrels of cider", "loaves of bread", "wheels of cheese", "bags of salt", "candles",
        "bottles of oil", "horseshoes")},
    {"debt_reason", ITEMS(
        "because {b.he} had mended {a.his} roof", "because {b.he} had nursed {a.him} through a fever",
        "after a lost game of cards", "for the use of an old boat", "in return for a good pair of boots",
        "because of a foolish bet at the summer fair", "for a whole month of help in the fields")},
    {"deed", ITEMS(
        "mend the broken fence", "carve a wooden horse", "paint the front door", "carry a letter to the coast", "dig a new well",
        "build a small boat", "sing at the wedding", "bake a cake with twelve layers", "plant three apple trees",
        "repair the tower clock", "sweep the chimney", "wash the windows of the school", "write a song about the river",
        "catch the runaway goat", "knit a pair of red gloves", "clean the old fountain")},
    // The same deeds in the same order, in the past.
    {"did", ITEMS(
        "mended the broken fence", "carved a wooden horse", "painted the front door", "carried a letter to the coast",
        "dug a new well", "built a small boat", "sang at the wedding", "baked a cake with twelve layers",
        "planted three apple trees", "repaired the tower clock", "swept the chimney", "washed the windows of the school",
        "wrote a song about the river", "caught the runaway goat", "knitted a pair of red gloves", "cleaned the old fountain")},
    {"deadline", ITEMS(
        "the first snow", "the harvest", "the summer fair", "the new moon", "the spring flood", "the feast of lanterns",
        "the longest night", "the end of the year")},
    {"love_reason", ITEMS(
        "because {b.he} laughed so easily",
        "because {b.he} never told a lie",
        "because of {b.his} gentle voice",
        "because {b.he} was kind to every animal",
        "because {b.he} could whistle like a bird",
        "because {b.he} had once shared {b.his} last apple with {a.him}")},
    {"fur", ITEMS("white", "black", "grey", "brown", "spotted", "striped", "speckled", "orange", "one-eyed", "lame")},
    {"animal", ITEMS("cat", "dog", "goat", "donkey", "goose", "hen", "pony", "rabbit", "crow", "owl", "pig", "duck")},
    {"pet", ITEMS(
        "Pepper", "Button", "Clover", "Pebble", "Biscuit", "Thimble", "Bramble", "Mustard", "Nutmeg", "Patches", "Whistle",
        "Acorn", "Turnip", "Feather", "Candle", "Bishop")},
    {"food", ITEMS(
        "onion soup", "plum cake", "warm bread with honey", "pea soup", "roast chestnuts", "pancakes", "apple pie", "fried fish",
        "barley porridge", "ginger biscuits", "cheese dumplings", "mushroom stew", "pickled cabbage", "raspberry jam",
        "smoked trout", "almond tarts")},
    {"fear", ITEMS(
        "thunder", "deep water", "spiders", "the dark forest", "geese", "ghosts", "high towers", "wolves", "snakes", "loud bells",
        "the dark", "fire", "strangers", "bees")},
    {"dream", ITEMS(
        "see the sea", "learn to read", "own a white horse", "sail around the world", "sing before the king",
        "build a house of stone", "find the source of the river", "play the violin", "visit the capital", "write a book",
        "climb the highest mountain", "plant an orchard", "fly in a balloon", "count all the stars")},

    // Small variations of the sentences between.
    {"bird", ITEMS("swallows", "crows", "sparrows", "doves", "larks", "starlings", "storks", "magpies")},
    {"flower", ITEMS("roses", "poppies", "daisies", "tulips", "violets", "lilies")},
    {"tree", ITEMS("oak", "elm", "birch", "willow", "pear tree", "chestnut")},
    {"weather", ITEMS(
        "a soft rain fell", "the fog came in", "the sun shone", "a cold wind blew", "it snowed a little",
        "the sky was clear and pale")},
    {"when", ITEMS("in the morning", "at noon", "in the afternoon", "toward evening", "before dawn", "late at night")},
    {"day", ITEMS("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")},
    {"tune", ITEMS("an old song", "a slow waltz", "a sad ballad", "a march", "a lullaby")},
    {"stranger", ITEMS("a pedlar", "a soldier", "a monk", "a tax collector", "an old woman", "a juggler")},
    {"ware", ITEMS("ribbons", "pots", "almanacs", "knives", "buttons", "spices")},

    // The opening: a is the first of the people, then each of the others in turn.
    {"opening", ITEMS(
        "In the village of {village}, {where}, there lived {a.a_trait} {a.job} named {a.name}. {a.His} house stood {a.home}.",
        "{village} was a small village {where}. {a.name}, {a.a_trait} {a.job}, lived there in a house {a.home}.",
        ("Everyone in {village} knew {a.name}, the {a.trait} {a.job} who lived {a.home}. The village lay {where}, and little "
         "ever happened there."),
        "Long ago, in {village}, there was {a.a_job} called {a.name}. {a.He} was {a.a_trait} soul and lived {a.home}.",
        "This is a story from {village}, {where}. It begins with {a.name}, {a.a_trait} {a.job} who lived {a.home}.")},
    {"arrival", ITEMS(
        "Not far away, {a.home}, lived {a.name}, {a.a_trait} {a.job}.",
        "{a.name} was {a.a_job} and lived {a.home}. People called {a.him} {a.trait}.",
        "The {a.job} of the village was {a.name}, who was {a.trait} and kept a small house {a.home}.",
        "In a house {a.home} lived {a.a_trait} {a.job} by the name of {a.name}.",
        "Then there was {a.name}, who worked as {a.a_job} and lived {a.home}. {a.He} was {a.trait} from head to toe.")},

    // Facts: told early, touched in the middle, needed in the ending. a has the fact, b is the other one in it, c is a third.
    {"object.early", ITEMS(
        ("{a.name} owned {a.an_object}, a gift from {a.his} {a.giver}. One night {a.he} hid the {a.object} {a.hide}, and only "
         "{b.name} knew about it."),
        ("From {a.his} {a.giver}, {a.name} had inherited {a.an_object}. Thieves had been seen on the road, so {a.he} put the "
         "{a.object} {a.hide} and told nobody but {b.name}."),
        ("{a.name}'s greatest treasure was {a.an_object} that had once belonged to {a.his} {a.giver}. {a.He} kept the "
         "{a.object} {a.hide}, and {b.name} had sworn never to speak of it."),
        ("There was one thing that {a.name} would never sell. It was {a.an_object}, which {a.his} {a.giver} had left to "
         "{a.him}. While {b.name} watched the door, {a.he} hid the {a.object} {a.hide}."))},
    {"object.middle", ITEMS(
        "Every now and then {a.name} went to look at the {a.object}. It still lay {a.hide}.",
        "{c.name} had heard rumours of {a.an_object} and searched half the village, but {c.he} never thought of looking {a.hide}.",
        "\"Is the {a.object} safe?\" whispered {b.name}. {a.name} nodded and glanced toward the {a.room}.",
        "In a dream {a.name} saw the {a.object} of {a.his} {a.giver}, shining in the dark {a.hide}.")},
    {"object.move", ITEMS(
        ("That night {a.name} grew uneasy. {a.He} took the {a.object} from its place {a.hide}, and before the sun rose it lay "
         "{a.next_hide}."),
        ("Rain came through the roof of the {a.room}, so {a.name} had to move the {a.object}. From that day on it was hidden "
         "{a.next_hide}."),
        ("{b.name} warned {a.name} that someone had asked about the {a.object}. At once {a.he} fetched it from where it lay "
         "{a.hide} and hid it {a.next_hide}."))},
    {"object.late", ITEMS(
        "\"Where is the {a.object}?\" asked {c.name}. \"It is {a.hide},\" said {a.name}, and so it was.",
        "\"Now you may all know my secret,\" said {a.name}. \"The {a.object} that I had from my {a.giver} lies {a.hide}.\"",
        "{c.name} begged to see the {a.object}. {a.name} looked at {b.name}, smiled, and went to fetch it. It lay {a.hide}.",
        "\"I have kept one secret for a long time,\" said {b.name}. \"{a.name}'s {a.object} is {a.hide}.\" {a.name} only laughed.")},
    {"debt.early", ITEMS(
        "{a.name} owed {b.name} {a.debt} {a.debt_reason}.",
        "At the last market {b.name} had lent {a.name} {a.debt}, and {a.name} had not yet paid them back.",
        "There was also a debt. {a.name} had to give {b.name} {a.debt} {a.debt_reason}.",
        "{b.name} was still waiting for {a.debt} from {a.name}, who owed them to {b.him} {a.debt_reason}.")},
    {"debt.middle", ITEMS(
        "{b.name} never spoke of the {a.debt}, but {a.name} had not forgotten what {a.he} owed.",
        "\"I still owe {b.name} {a.debt},\" {a.name} sighed, \"and my shelves are empty.\"",
        "{c.name} wanted to help {a.name} with the debt, but {a.debt} were more than {c.he} could spare.")},
    {"debt.late", ITEMS(
        "{a.name} went up to {b.name} and gave {b.him} {a.debt}. \"Now I owe you nothing,\" {a.he} said.",
        "\"How much does {a.name} owe you?\" asked {c.name}. \"{a.Debt},\" answered {b.name} at once.",
        "On the table lay {a.debt}. {a.name} had brought them for {b.name}, and with that the old debt was paid.",
        "{b.name} shook {b.his} head when {a.name} came with {a.debt}. \"Keep them,\" {b.he} said. \"You are my friend.\"")},
    {"promise.early", ITEMS(
        "{a.name} had promised {b.name} to {a.deed} before {a.deadline}.",
        "\"I will {a.deed} before {a.deadline},\" {a.name} had told {b.name}, and they had shaken hands on it.",
        ("In a weak moment {a.name} had given {b.name} {a.his} word that {a.he} would {a.deed}, and it had to be done before "
         "{a.deadline}."))},
    {"promise.middle", ITEMS(
        "\"Do you remember what you promised me?\" asked {b.name}. \"Of course,\" said {a.name}. \"I will {a.deed}.\"",
        "{a.name} began to worry. There was little time left to {a.deed}, for {a.deadline} was near.",
        "{c.name} laughed and said that {a.name} would never {a.deed}, but {b.name} did not agree.")},
    {"promise.late", ITEMS(
        "{a.name} had kept {a.his} word. Before {a.deadline} came, {a.he} {a.did}, and {b.name} thanked {a.him} warmly.",
        "\"What did {a.name} promise you?\" asked {c.name}. \"To {a.deed},\" said {b.name}, \"and {a.he} did it before {a.deadline}.\"",
        "And because {a.he} had promised it to {b.name}, {a.name} {a.did}.")},
    {"love.early", ITEMS(
        "Secretly {a.name} loved {b.name} {a.love_reason}.",
        "{a.name} had never told anyone that {a.he} loved {b.name}.",
        "Nobody knew it yet, but {a.name} was in love with {b.name} {a.love_reason}.")},
    {"love.middle", ITEMS(
        "When {b.name} walked past, {a.name} blushed and dropped {a.his} hat.",
        "{a.name} wrote a letter to {b.name}, read it twice, and threw it into the fire.",
        "\"Whom are you thinking of?\" asked {c.name}. {a.name} did not answer, but {a.he} looked across the square at {b.name}.")},
    {"love.late", ITEMS(
        "\"Whom do you love?\" {c.name} asked {a.name}. \"I love {b.name},\" {a.he} said quietly.",
        "At last {a.name} took {b.name} by the hand and told {b.him} everything. {a.He} loved {b.him} {a.love_reason}.",
        "{a.name} danced with nobody but {b.name} that evening, and so the secret was out.")},
    {"pet.early", ITEMS(
        "{a.name} had {a.an_animal} named {a.pet} that followed {a.him} everywhere.",
        "With {a.name} lived {a.an_animal} called {a.pet}.",
        "{a.name}'s only companion at home was {a.pet}, {a.an_animal} with a bad temper.")},
    {"pet.middle", ITEMS(
        "{a.pet}, {a.name}'s {a.animal}, ran away and came back only when it was dark.",
        "In the market {a.pet} the {a.kind} stole a bun, and {a.name} had to pay for it.",
        "\"Whose {a.animal} is this?\" asked {c.name}. \"It belongs to {a.name},\" said {b.name}. \"Its name is {a.pet}.\"")},
    {"pet.late", ITEMS(
        "\"What is your {a.kind} called?\" asked {c.name}. \"{a.pet},\" said {a.name}, and the {a.animal} looked up.",
        "By the door slept {a.pet}, the {a.animal}, and waited for {a.name}.",
        ("Somebody had left the gate open, and {a.pet} was gone. They searched until {b.name} found the {a.animal} in the "
         "{room} and brought it back to {a.name}."))},
    {"food.early", ITEMS(
        "{a.name} liked nothing better than {a.food}.",
        "For {a.food}, {a.name} would have walked ten miles.",
        "In all the world, {a.name} used to say, there was nothing like {a.food}.")},
    {"food.middle", ITEMS(
        "On {day} {a.name} spent {a.his} last penny on {a.food}.",
        "{c.name} made {a.food} for {a.name}, and for a while nobody heard a word from {a.him}.",
        "\"You smell of {a.food},\" {b.name} said to {a.name}, who was not even ashamed.")},
    {"food.late", ITEMS(
        "{b.name} had not forgotten what {a.name} liked best and put a large helping of {a.food} in front of {a.him}.",
        "\"What shall we make for {a.name}?\" asked {c.name}. \"{a.Food}, of course,\" said {b.name}.",
        "There was something for everyone, and {a.name} got {a.food}.")},
    {"fear.early", ITEMS(
        "{a.name} was afraid of {a.fear}, though {a.he} never admitted it.",
        "Since childhood {a.name} had feared {a.fear} more than anything else.",
        "Only {b.name} knew that {a.name} was afraid of {a.fear}.")},
    {"fear.middle", ITEMS(
        "When the talk turned to {a.fear}, {a.name} went pale and left the room.",
        "{c.name} told a long story about {a.fear}, and {a.name} did not sleep that night.",
        "\"There is nothing to fear here,\" {b.name} told {a.name}. \"I see no sign of {a.fear}.\"")},
    {"fear.late", ITEMS(
        "\"What are you afraid of?\" {c.name} asked {a.name}. \"{a.Fear},\" {a.he} said, and this time {a.he} was not ashamed.",
        "That night {a.name} learned not to be afraid of {a.fear}, because {b.name} stayed beside {a.him}.",
        "\"Are you still afraid of {a.fear}?\" asked {b.name}. \"A little,\" said {a.name}.")},
    {"dream.early", ITEMS(
        "All {a.his} life {a.name} had wished to {a.dream}.",
        "{a.name} saved every coin, for {a.he} wanted to {a.dream}.",
        "If you asked {a.name} what {a.he} wished for, {a.he} would say that one day {a.he} would {a.dream}.")},
    {"dream.middle", ITEMS(
        "\"One day I will {a.dream},\" {a.name} told {c.name}, who did not believe a word of it.",
        "At night {a.name} lay awake and thought of how {a.he} would {a.dream}.",
        "{b.name} asked whether {a.name} still wanted to {a.dream}. \"More than ever,\" {a.he} said.")},
    {"dream.late", ITEMS(
        "\"And what will you do now?\" {c.name} asked {a.name}. \"I will {a.dream},\" {a.he} said. \"I have waited long enough.\"",
        "{a.name} got {a.his} wish as well. In the next year {a.he} set out to {a.dream}.",
        "{b.name} gave {a.name} a purse full of coins and said, \"Go and {a.dream}.\"")},

    // Sentences between that need no fact, but often a person's work or home. a and b are any two people.
    {"filler", ITEMS(
        "On {day} {weather}, and the {bird} sat silent on the roof of the {room}.",
        "The {flower} beside the road were late that year.",
        "{when} {weather}. Nobody went out except the {a.job}, who had work to do.",
        "The {a.job} and the {b.job} met at the well and talked about the price of wheat.",
        "\"You look tired,\" the {a.job} said to the {b.job}. \"So do you,\" said {b.name}.",
        "It is not easy to be {a.a_job}, and {a.name} went to bed tired.",
        "{a.name} hummed {tune} while {a.he} swept the floor of the {room}.",
        "The old {tree} behind the {room} lost a branch in the storm.",
        "{stranger} came through {village} and sold {ware} to anyone who would buy.",
        "Two children chased a hoop down the street and nearly knocked {a.name} over.",
        "{a.name} met {b.name} {b.home}, and they walked a little way together.",
        "\"Will it rain?\" asked {a.name}. \"It always rains in {village},\" said {b.name}.",
        "The bell in the tower rang {number} times, and the {bird} flew up.",
        "{a.name} cut {a.his} finger, and {b.name} tied a clean cloth around it.",
        "{b.name} asked {a.name} for some advice, but the {a.job} had none to give.",
        "The river rose a little and then fell again.",
        "{when} the {b.job} came home and found mud on every step.",
        "Somebody had painted a moustache on the statue in the square, and the whole village laughed.",
        "A letter came for {a.name}, but it was only an old bill.",
        "{a.name} and {b.name} played a game of chess, which {b.name} won.",
        "The mice in the {room} grew fat and lazy.",
        "\"What {a.a_trait} person that {a.job} is,\" said {b.name}, and it was true.",
        "{weather}, and the smoke of the chimneys lay flat over the roofs.",
        "{b.name} had a cold and stayed in the house {b.home} for three days.",
        "The {a.job} bought {ware} at the market and forgot them on a wall.",
        "A cart lost its wheel in front of the {room}, and everyone gave a different opinion.",
        "{a.name} planted {flower} along the path.",
        "For a whole week nothing happened at all.",
        "The {b.job} told a joke that nobody understood except {a.name}.",
        "{stranger} asked the way, and {a.name} pointed to the hills.",
        "{when} {a.name} sat under the {tree} and listened to the {bird}.",
        "\"Good day,\" said {a.name}. \"Good day,\" said the {b.job}, and that was all.",
        "The road to the coast was closed, so no one bought {ware} that month.",
        "{b.name} lost a glove near the {room}, and {a.name} brought it back.",
        "In the inn they sang {tune}, and only {a.name} knew all the words.",
        "{a.name} counted the steps from the {room} to the well and came to {number} hundred.",
        "The moon stood over {village} like a lamp.",
        "A dog barked somewhere, and then it was quiet again.",
        "{a.name} knocked at the door of the {b.trait} {b.job}, but nobody was at home.",
        "They all agreed that the winters had been colder in the old days.")},
    {"passage", ITEMS(
        "Days went by.", "Some weeks passed.", "So the summer came to an end.", "A month later things had changed a little.",
        "Time passed slowly in {village}.", "Then the weather turned.", "After that there was peace for a while.",
        "The next week was a busy one.")},

    // The ending: a gathering, questions, the way home, a last sentence. a is any of the people, then each in turn on the way home.
    {"gathering", ITEMS(
        "At the end of that year they all met in the {room}. \"Let us see what we remember,\" said {a.name}.",
        "Then came the evening when all of them sat together in the {room}. The fire was warm, and nobody wanted to go home.",
        "A long time later, on a cold evening, they sat around one table in the {room}. \"No more secrets,\" said {a.name}.",
        "One evening the {a.job} invited everyone to the {room}. \"Tonight all things shall be settled,\" {a.he} said.")},
    {"way_home", ITEMS(
        "{a.name} the {a.job} walked back to {a.his} house {a.home}.",
        "The {a.trait} {a.job} went home, and a light was lit in the house {a.home}.",
        "Soon {a.name} was asleep in the house {a.home}.",
        "{a.name}, who was still {a.a_job} and still {a.trait}, lived {a.home} for many more years.")},
    {"closing", ITEMS(
        "And if you ever come to {village}, ask for {a.name} the {a.job}, and you will hear this story again.",
        "From that day on nobody in {village} kept a secret from a friend.",
        "The lamps went out one by one, and {village} slept.",
        "That is how it was in {village}, and the {a.job} still tells it to everyone who will listen.")},
};

const StoryList *story_list(const char *key, size_t length)
{
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (strlen(lists[i].key) == length && memcmp(lists[i].key, key, length) == 0) {
            return &lists[i];
        }
    }
    return NULL;
}
