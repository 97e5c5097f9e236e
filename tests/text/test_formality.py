import pytest

from onehop.text.formality import formality


@pytest.mark.parametrize(
    ("text", "language", "form"),
    [
        ("Hast du Zeit?", "de", "informal"),
        ("Das ist dein Buch.", "de", "informal"),
        ("Ich habe euch gesehen.", "de", "informal"),
        ("Haben Sie Zeit?", "de", "formal"),
        ("Ich danke Ihnen.", "de", "formal"),
        ("Sie haben Zeit.", "de", None),  # she, they or you
        ("Er kam. Sie ging.", "de", None),
        ("Sie mag dich.", "de", None),
        ("Er gab ihr das Buch.", "de", None),  # her
        ("Ich weiß, ihr kommt.", "de", None),
        ("Haben Sie dich gesehen?", "de", None),  # both
        ("Das Haus ist alt.", "de", None),
        ("Avez-vous le temps ?", "fr", "formal"),
        ("Je t'aime.", "fr", "informal"),
        ("Vous et toi.", "fr", None),
        ("Do you have time?", "en", None),
    ],
)
def test_formality_is_recognised_by_pronouns(text, language, form):
    assert formality(text, language) == form
