"""The screens, one module each: which values they show, and what their buttons do.

A screen gives routes; each handler gathers values from the crib and hands them to `respond`. What a button does is
what the API does, by the same services.
"""
