"""The language of Nature: its words, its grammar, and the words of each topic in each era.

A post is a chain of word classes. Words of the closed classes have the same probabilities for
everyone; those of words of the topical classes depend on the post's topic, the era and the user.
Every word is one token of NLTK's TweetTokenizer, alone and between all neighbours that the
grammar allows. So a full stop never follows a full stop (spaced dots would be one ellipsis), there
are no numbers (spaced numbers would be a telephone number), and no emoji of several code points.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.data.clean import URL

CLOSED = {  # the most frequent words first; no word is in two classes
    "pronoun": "i you it we they he she this that everyone someone nobody i'm you're it's",
    "auxiliary": """is was can have will are do would should had has must could might don't can't
        won't didn't isn't never""",
    "determiner": "the a my your some no our his her every another any their its",
    "preposition": """to of in and for on with but at from about so because like or into when after
        before without until over under than if""",
    "adverb": """just really now too always again today still here maybe there finally tonight
        soon already almost tomorrow""",
    "comma": ",",
    "stop": ". ! ? ...",
    "url": URL,
}

# The nouns, verbs, adjectives, hashtags and emoji of each topic. All topics have as many words of a
# class, so that word i of a class belongs to topic i % 12.
TOPICS = {
    "music": """song music album concert band guitar radio singer crowd stage lyrics drums |
        sing dance listen hear record play | loud acoustic live catchy smooth |
        #nowplaying #newmusic #vinyl #livemusic | 🎶 🎸 🎤 🎧""",
    "football": """game team goal season coach ball match player league stadium fans score |
        win lose kick tackle cheer watch | fast offside unbeaten strong lucky |
        #goals #worldcup #gameday #football | 🏆 🏀 🏈 👟""",
    "food": """food dinner coffee pizza cake breakfast kitchen recipe cheese soup chicken bread |
        eat cook bake taste drink order | hungry delicious spicy sweet fresh |
        #foodie #yum #brunch #homemade | 🍕 🍔 🍰 🍩""",
    "politics": """government vote election law president country tax court war freedom party
        senate | campaign protest argue speak lie govern | corrupt free national public honest |
        #politics #election #vote #debate | 📢 🗽 😡 📰""",
    "weather": """rain sun snow wind summer storm winter sky cold clouds forest river |
        pour shine freeze melt grow bloom | warm sunny rainy frozen windy |
        #weather #sunset #snowday #spring | 🌞 🌈 🌊 🌸""",
    "games": """level console quest dragon controller server sword castle lobby puzzle boss armor |
        dodge shoot respawn build grind hack | epic virtual legendary rare hidden |
        #gaming #esports #speedrun #retro | 🎮 👾 🐉 🎲""",
    "school": """school class exam teacher homework book college paper library grade lecture
        student | study read write learn teach fail | smart boring difficult late academic |
        #school #finals #study #graduation | 📚 🎓 😴 😩""",
    "love": """love heart family mother baby friend wedding kiss brother sister girl boy |
        hug miss marry adore trust forgive | lonely happy beautiful crazy dear |
        #love #family #blessed #friends | 😍 💕 😘 💔""",
    "film": """movie film show episode actor scene trailer series theater screen sequel villain |
        rewatch laugh cry act binge rewind | funny scary romantic classic overrated |
        #movies #oscars #finale #nowwatching | 🎬 😂 😱 🍿""",
    "work": """job office meeting computer phone code email salary project money deadline software |
        work type send fix hire quit | busy tired rich digital broken |
        #tech #work #startup #monday | 💻 📱 💰 😎""",
    "travel": """trip plane beach city hotel train road airport island map passport luggage |
        fly drive walk pack explore wander | foreign lost far local wild |
        #travel #wanderlust #roadtrip #vacation | 🚗 🌍 🌴 🚀""",
    "health": """gym doctor sleep body muscle yoga diet workout pain medicine headache health |
        sweat lift stretch rest heal breathe | sick healthy sore calm weak |
        #fitness #health #yoga #running | 💪 🙏 🔥 😷""",
}
_BY_TOPIC = [[words.split() for words in topic.split("|")] for topic in TOPICS.values()]
_BY_CLASS = zip(
    ("noun", "verb", "adjective", "hashtag", "emoji"), zip(*_BY_TOPIC, strict=True), strict=True
)
OPEN = {name: list(chain(*zip(*words, strict=True))) for name, words in _BY_CLASS}

CLASSES = (*CLOSED, "noun", "verb", "adjective", "hashtag", "mention", "emoji")
TOPICAL = len(CLOSED)  # this class and those after it are topical
URL_CLASS = CLASSES.index("url")
MENTION_CLASS = CLASSES.index("mention")
END = len(CLASSES)  # before the first word of a post, and after the last
SHARES = {"verb": 0.12, "adjective": 0.1, "hashtag": 0.12, "mention": 0.1, "emoji": 0.025}

# The classes that follow each class, with weights. No post begins with a mention, as replies do.
GRAMMAR = {
    "pronoun": "verb 44 auxiliary 46 adverb 10",
    "auxiliary": "verb 42 adjective 13 adverb 15 determiner 18 preposition 6 pronoun 6",
    "determiner": "noun 70 adjective 30",
    "preposition": "determiner 46 pronoun 20 noun 22 adjective 5 mention 7",
    "adverb": "verb 24 adjective 26 determiner 13 pronoun 14 preposition 8 stop 10 end 2",
    "comma": "pronoun 36 determiner 20 noun 10 adverb 16 preposition 10 mention 8",
    "stop": "end 32 pronoun 20 determiner 10 hashtag 12 emoji 7 url 7 adverb 6",
    "url": "end 72 hashtag 18 mention 10",
    "noun": """preposition 26 verb 9 auxiliary 9 stop 18 comma 5 hashtag 8 emoji 5 url 4 end 4
        noun 4 adverb 4""",
    "verb": "determiner 34 pronoun 10 preposition 20 noun 19 adverb 4 adjective 5 stop 4 mention 4",
    "adjective": "noun 62 preposition 11 stop 12 comma 5 end 2 emoji 4 hashtag 2",
    "hashtag": "end 48 hashtag 22 url 12 emoji 8 mention 4 verb 6",
    "mention": "end 20 verb 20 auxiliary 18 stop 14 mention 10 hashtag 6 emoji 6 preposition 6",
    "emoji": "end 62 emoji 18 hashtag 12 url 8",
    "end": """pronoun 34 determiner 17 adverb 6 noun 13 verb 12 adjective 7 preposition 4
        auxiliary 2 hashtag 4 emoji 1""",
}

SYLLABLES = [c + v for c in (*"bdfgklmnprstvz", "ch", "sh") for v in "aeiou"]


class Language(NamedTuple):
    """The parameters of the language that all users share."""

    words: tuple[str, ...]  # class by class
    class_of: NDArray[np.int64]  # [word]
    start: NDArray[np.int64]  # [class + 1]: the first word of each class
    transition: NDArray[np.float64]  # [class before, class after]
    closed: NDArray[np.float64]  # [word of a closed class]: probability within its class
    topical: NDArray[np.float64]  # [era, topic, word of a topical class]: likewise


def grammar() -> NDArray[np.float64]:
    """The probabilities ``[class before, class after]``; END stands for both ends of a post."""
    index = {name: i for i, name in enumerate((*CLASSES, "end"))}
    matrix = np.zeros((END + 1, END + 1))
    for before, parts in GRAMMAR.items():
        fields = parts.split()
        for after, part in zip(fields[::2], fields[1::2], strict=True):
            matrix[index[before], index[after]] = float(part)
    return np.asarray(matrix / matrix.sum(1, keepdims=True))


def handles(users: int, generator: np.random.Generator) -> list[str]:
    """Different names, one for each user."""
    draws = generator.integers(0, 1 << 30, size=(users, 5)).tolist()
    names: dict[str, None] = {}
    for user, (one, two, style, letter, number) in enumerate(draws):
        name = SYLLABLES[one % len(SYLLABLES)] + SYLLABLES[two % len(SYLLABLES)]
        if style % 4:
            name += ("", "_", "x")[style % 4 - 1] + "abcdefghjklmnprstvwz"[letter % 20]
        if style % 8 < 5:
            name += str(number % 100)
        names[name if name not in names else f"{name}_{user}"] = None
    return list(names)


def vocabulary(
    size: int, users: Sequence[str], generator: np.random.Generator
) -> list[Sequence[str]]:
    """``size`` different words, class by class; where real words are too few, made-up ones."""
    fill = _made_up(generator)
    known = {name: words.split() for name, words in CLOSED.items()}
    wanted = {name: min(len(words), max(3, size // 80)) for name, words in known.items()}
    wanted |= {name: max(3, round(share * size)) for name, share in SHARES.items()}
    wanted["mention"] = min(wanted["mention"], len(users))
    wanted["emoji"] = min(wanted["emoji"], len(OPEN["emoji"]))
    wanted["noun"] = size - sum(wanted.values())
    known |= OPEN | {"mention": [f"@{user}" for user in users]}
    words: list[Sequence[str]] = []
    for name in CLASSES:
        chosen = known[name][: wanted[name]]
        mark = "#" if name == "hashtag" else ""
        words.append(chosen + [mark + next(fill) for _ in range(wanted[name] - len(chosen))])
    return words


def _made_up(generator: np.random.Generator) -> Iterator[str]:
    """Yield different pronounceable words that are not among the real ones."""
    seen = set(chain(" ".join(CLOSED.values()).split(), *OPEN.values()))
    while True:
        count, *draws, last = generator.integers(0, 1 << 30, size=6).tolist()
        word = "".join(SYLLABLES[draw % len(SYLLABLES)] for draw in draws[: 2 + count % 2])
        word += ("", "n", "r", "s", "l")[last % 5]
        if word not in seen:
            seen.add(word)
            yield word


def language(
    words: list[Sequence[str]],
    topics: int,
    years: NDArray[np.float64],
    drift: float,
    generator: np.random.Generator,
) -> Language:
    """The language with these words; ``years`` holds the time of each era in years."""
    sizes = np.array([len(group) for group in words])
    start = np.concatenate([[0], np.cumsum(sizes)])
    rank = np.concatenate([np.arange(size) for size in sizes])
    first = start[TOPICAL]
    closed = (rank[:first] + 1.0) ** -1.3
    # Word i of a class belongs to topic i % topics; in other topics it is rare, but possible.
    home = rank[first:] % topics
    weight = (rank[first:] // topics + 1.0) ** -1.2
    at_home = np.where(home == np.arange(topics)[:, None], 1.0, 0.25 / topics)  # [topic, word]
    # Each word becomes more and less frequent with its own period of 3 to 10 years.
    period, phase = generator.random((len(weight), 2)).T
    angle = 2 * np.pi * (years[:, None] / (3 + 7 * period) + phase)
    fashion = np.exp(3 * drift * np.sin(angle))  # [era, word]
    topical = weight * at_home * fashion[:, None, :]
    for begin, end in pairwise(start[TOPICAL:] - first):
        topical[..., begin:end] /= topical[..., begin:end].sum(-1, keepdims=True)
    for begin, end in pairwise(start[: TOPICAL + 1]):
        closed[begin:end] /= closed[begin:end].sum()
    class_of = np.repeat(np.arange(len(CLASSES)), sizes)
    return Language(tuple(chain(*words)), class_of, start, grammar(), closed, topical)


FOREIGN = {  # by language, the beginnings, middles and ends of sentences
    "es": ("hoy mañana|mi hermano|la gente|nosotros siempre|mi madre|este año",
           "quiere comer|habla mucho de|no entiende|busca otra vez|mira todos los días",
           "en la playa|el partido de fútbol|con mis amigos|la música nueva|por la noche"),
    "de": ("heute|meine schwester|der neue lehrer|das wetter|unsere mannschaft|mein nachbar",
           "ist wirklich|macht schon wieder|bleibt leider noch|war gestern abend",
           "sehr schön|viel zu laut|nicht zu hause|auf dem weg nach berlin|wunderbar müde"),
    "pt": ("hoje|minha mãe|meu irmão|o meu time|a gente|essa menina",
           "não quer mais|vai ficar|está sempre|gosta muito de",
           "saudade de você|dormir até tarde|jogar bola na rua|feijão com arroz|cantar"),
    "fr": ("aujourd'hui|ma sœur|le professeur|mon voisin|cette chanson|tout le monde",
           "ne veut pas|est vraiment|aime beaucoup|va bientôt",
           "trop bien|manger du fromage|partir en vacances|regarder le match|dormir ici"),
    "ja": ("今日は|明日も|うちの猫が|友達と|日本の夏は|新しい先生が",
           "とても|やっぱり|久しぶりに|ずっと",
           "楽しかったです|眠いなあ|ご飯を食べました|学校に行きます|歌っています"),
}  # fmt: skip


def foreign() -> list[tuple[str, str]]:
    """All sentences that are not English, each with the code of its language."""
    return [
        (code, ("" if code == "ja" else " ").join(sentence))
        for code, parts in FOREIGN.items()
        for sentence in product(*(part.split("|") for part in parts))
    ]
