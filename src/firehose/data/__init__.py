"""Sources of posts, how a corpus is made from them, and how it is read."""
