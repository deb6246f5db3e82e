"""The documentation is checked: its links, the paths and names it uses, its rules and its words."""
