"""What the subcommands of ``ringconv`` do: options and help are the signature and the docstring of one function."""
