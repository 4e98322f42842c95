"""A generated encyclopedia in KILT's file formats: for trying everything without a download.

People, towns, companies, schools and novels, all invented, and questions of five tasks about them. It is hard where
real data is: name-sakes, pages that hold the answer string about somebody else, facts told away from their gold page,
facts over two pages, questions in other words than the pages. Made district by district (`district`, `pages`,
`tasks`), so that memory does not grow with size; `files` writes it.
"""
