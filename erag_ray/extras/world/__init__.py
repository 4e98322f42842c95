"""A synthetic encyclopedia in KILT's file formats, for demos and tests without a download.

It has fictitious people, towns, companies, schools and novels, and questions of five tasks about them. It is hard where
real data is: namesakes, pages with the answer string in another fact, facts that are not on their subject's page, facts
over two pages, and questions in other words than the pages. It is generated district by district (`district`, `pages`,
`tasks`), so that memory does not grow with size; `files` writes it.
"""
