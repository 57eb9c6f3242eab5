"""The screens, one module each.

A screen defines routes; its handlers collect values from the crib and pass them to `respond`. Buttons use the same
services as the REST API.
"""
