"""Tagged sentences: their files, and the words of running text as these files split them."""
