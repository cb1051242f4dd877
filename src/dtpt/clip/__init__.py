"""The model: two towers, tokenizer, preprocessing, class prompts and loading."""
