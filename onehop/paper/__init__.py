"""`onehop paper …`: the paper's tables measured again, each in one command; tables, raw numbers and a picture each."""
