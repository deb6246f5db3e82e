"""The tests of Sandur; a package, so that fakes and servers can be imported by name."""
