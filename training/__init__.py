"""How the embedded model `pocket` is trained: from artwork fetched by package name to weights."""
