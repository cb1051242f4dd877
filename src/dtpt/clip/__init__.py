"""The model: two towers, tokenizer, preprocessing, loading."""
