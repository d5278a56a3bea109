"""The names of surveys are those of the catalogues, and as many as the page promises."""

from tests.docs.pages import ROOT, script

names = script("survey_names")


def _surveys() -> list:
    pages = {name: page.file for page in script("tables").GATE_PAGES() for name in page.names}
    return names.surveys(pages)


def test_every_name_is_here_or_has_a_reason() -> None:
    for survey in _surveys():
        assert len({each.name for each in survey.names}) == len(survey.names)
        for each in survey.names:
            assert each.places or each.note, each.name
            assert not (each.places and each.note.startswith("no ")), each.name


def test_as_many_names_are_here_as_must_be() -> None:
    found = {survey.title.partition(",")[0]: (survey.count, len(survey.names)) for survey in _surveys()}
    assert [total for _, total in found.values()][:3] == [21, 31, 33]
    for survey in _surveys():
        assert survey.count >= survey.least, survey.title


def test_the_first_page_leads_to_the_surveys() -> None:
    assert "(docs/surveys.md)" in (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Train")[0]
