"""Plan the requests of a job: all requests, minus the cached responses, with a cost preview.

`plan_stage` plans a stage and `preview` estimates its cost. `pending` builds requests and their keys. `uses` selects
and checks the model and form for each kind of request before any weights are loaded.
"""
