"""docs/settings.md agrees with the settings class."""

from checks.settings_reference import PAGE, render_page


def test_the_settings_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page() + "\n", "run: python -m checks.settings_reference"
