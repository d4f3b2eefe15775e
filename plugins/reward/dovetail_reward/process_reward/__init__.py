"""Process rewards, one file each: numbers for the tokens of a completion."""
