"""Views of a repository: values computed with a bounded number of requests, for the page and for notebooks."""
