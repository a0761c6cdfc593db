"""The web page of ``ringconv demo``: networks beside each other while their image turns."""
