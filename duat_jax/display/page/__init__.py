"""A result as a page: one offline file of HTML, whose numbers sum on the screen."""
