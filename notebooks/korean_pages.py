"""A small Korean encyclopedia by templates, with questions in KLUE-MRC's JSON: dual labels without a download.

    python notebooks/korean_pages.py results/korean
    erag-ray dual_labels --queries '[results/korean/klue.json]' --out results/korean/dual_labels
        --knowledge_source '[results/korean/pages.parquet]' --retrievers '{BM25: {kind: bm25, analyser: korean}}'

Everybody in it is invented. People share family names, towns and occupations, a page has several chunks of 300
characters, and each page also tells facts about others, so the best chunk may be of another page and still hold the
answer. It says how a job runs, not how good a retriever is on real text.
"""

import json
import pathlib
import random
import sys

import polars as pl

# ruff: noqa: SIM905 (lists of words are easier to read so)
NUM_PAGES = 150
FAMILIES = "김 이 박 최 정 강 조 윤 장 임".split()
FIRST = "가 나 다 라 마 서 소 수 시 아 영 우 은 자 지 진 찬 태 하 현".split()
LAST = "람 린 민 별 빈 솔 연 온 율 인 준 진 혁 호 훈".split()
TOWNS = "가람시 누리시 다온시 도담읍 마루시 미르읍 보람시 새벽읍 아라시 온새미읍 하늬시 한울시".split()
JOBS = "화가 작곡가 건축가 시인 의사 천문학자 도예가 식물학자".split()
THINGS = "강 숲 달 바다 편지 등불 겨울 정원 다리 새벽".split()
QUALITIES = "푸른 조용한 오래된 먼 붉은 낮은 긴 마지막".split()
FILLERS = (
    "어린 시절에는 몸이 약하여 집에서 책을 읽으며 보내는 날이 많았다고 전해진다.",
    "주변 사람들은 그를 말수가 적고 약속을 어기지 않는 사람으로 기억하였다.",
    "그 무렵 이 지역에는 큰 장이 열려 여러 고장의 사람들이 모여들었다.",
    "남긴 편지는 지금도 시립 도서관에서 볼 수 있으며 해마다 전시가 열린다.",
    "한때는 병으로 일을 쉬었으나 이듬해 봄에 다시 돌아와 하던 일을 이어 갔다.",
    "만년에는 제자들과 함께 작은 집을 짓고 텃밭을 가꾸며 지냈다.",
    "당시의 신문은 이 일을 짧게 다루었지만 사람들의 입에는 오래 오르내렸다.",
)


def particle(word: str, after_consonant: str, after_vowel: str) -> str:
    """The word with the particle that its last syllable asks for."""
    ends_in_consonant = (ord(word[-1]) - 0xAC00) % 28 > 0
    return word + (after_consonant if ends_in_consonant else after_vowel)


def make_people(chance: random.Random, count: int) -> list[dict[str, str]]:
    """So many people with different names."""
    names = [family + first + last for family in FAMILIES for first in FIRST for last in LAST]
    people = []
    for name in chance.sample(names, count):
        work = f"{chance.choice(QUALITIES)} {chance.choice(THINGS)}"
        facts = {
            "year": f"{chance.randint(1850, 1960)}년",
            "town": chance.choice(TOWNS),
            "job": chance.choice(JOBS),
        }
        people.append({"name": name, "work": work, **facts})
    for person in people:
        person["teacher"] = chance.choice([other for other in people if other is not person])["name"]
    return people


def sentences(person: dict[str, str]) -> list[str]:
    """What is told of a person."""
    name, job = person["name"], person["job"]
    return [
        f"{particle(name, '은', '는')} {person['year']} {person['town']}에서 태어난 {particle(job, '이다', '다')}.",
        f"{name}의 대표작은 《{person['work']}》이라는 작품이다.",
        f"{particle(name, '은', '는')} 젊은 날 {person['teacher']}에게서 {particle(job, '이', '가')} 되는 길을 배웠다.",
    ]


def questions(person: dict[str, str]) -> list[tuple[str, str]]:
    """Question and answer."""
    name = person["name"]
    return [
        (f"{particle(name, '이', '가')} 태어난 해는 언제인가?", person["year"]),
        (f"{particle(name, '이', '가')} 태어난 곳은 어디인가?", person["town"]),
        (f"{name}의 대표작은 무엇인가?", person["work"]),
        (f"{name}에게 일을 가르친 사람은 누구인가?", person["teacher"]),
    ]


def make_page(person: dict[str, str], people: list[dict[str, str]], chance: random.Random) -> str:
    """The page: what is told of the person, of two others, and of nobody."""
    told = sentences(person)
    about_others = [chance.choice(sentences(other)) for other in chance.sample(people, 2)]
    rest = [*told[1:], *about_others, *chance.sample(FILLERS, 5)]
    chance.shuffle(rest)
    whole = [told[0], *rest]
    return "\n\n".join(" ".join(whole[start : start + 3]) for start in range(0, len(whole), 3))


def main(out: pathlib.Path, seed: int) -> None:
    chance = random.Random(seed)
    people = make_people(chance, NUM_PAGES)
    pages = {person["name"]: make_page(person, people, chance) for person in people}
    articles = []
    for number, person in enumerate(people):
        asked = [
            {
                "guid": f"korean_{number:04}_{place}",
                "question": question,
                "answers": [{"text": answer, "answer_start": pages[person["name"]].find(answer)}],
                "question_type": 1,
                "is_impossible": False,
            }
            for place, (question, answer) in enumerate(chance.sample(questions(person), 3))
        ]
        paragraph = {"context": pages[person["name"]], "qas": asked}
        articles.append(
            {"title": person["name"], "source": "wikipedia", "news_category": None, "paragraphs": [paragraph]}
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / "klue.json").write_text(
        json.dumps({"version": "made", "data": articles}, ensure_ascii=False, indent=1)
    )
    pl.DataFrame({"title": list(pages), "text": list(pages.values())}).write_parquet(out / "pages.parquet")
    print(f"{len(pages)} pages, {3 * len(people)} questions: {out}")


if __name__ == "__main__":
    main(
        pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/korean"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 0,
    )
