"""The earlier benchmarks, with the same game: a task is a user, a picture is a post."""
