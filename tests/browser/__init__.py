"""The web UI in a real browser: Chromium, driven by Playwright's asynchronous API."""
