"""Plans send requests in rounds and get the answers in order."""

from dataclasses import dataclass

import pytest

from onehop.decoding.options import SearchOptions
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.plan import Search, run
from onehop.pipelines.sentence_translator import SentenceTranslator


@dataclass
class Doubled:
    number: int

    def answer(self):
        return 2 * self.number


def test_a_plan_gets_its_answers_in_order():
    def plan():
        first = yield [Doubled(1), Doubled(2)]
        second = yield [Doubled(each) for each in first]
        return first, second

    assert run(plan()) == ([2, 4], [4, 8])


def test_an_exception_of_a_request_ends_the_plan():
    def plan():
        yield [Doubled(None)]
        pytest.fail("it went on without an answer")

    with pytest.raises(TypeError):
        run(plan())


@pytest.fixture(scope="module")
def translator(model_file):
    return SentenceTranslator.load(model_file, engine="torch")


def test_lines_with_and_without_prefix_are_separate_requests(translator):
    by = ParagraphTranslator(translator, max_length=64, options=SearchOptions(beam=1))
    plan = by.plan(["the old house. a bird", "a tree"], prefixes=["a new", ""])
    plain, forced = next(plan)
    encode = translator.tokenizer.encode
    assert (plain.sources, plain.prefixes) == ([encode("a bird"), encode("a tree")], None)
    assert (forced.sources, forced.prefixes) == ([encode("the old house.")], [encode("a new")])
    assert isinstance(plain, Search)
    _, sentences = run(by.plan(["the old house. a bird", "a tree"], prefixes=["a new", ""]))
    assert sentences[0][0].text.startswith("a new")
    assert [s.text for s in sentences[1]] == [by.translate(["a tree"])[0].text]
