"""GitHub or GitHub Enterprise: the operations agents may perform with the owner's token.

`api` sends requests, `failures` maps error responses, `names` validates names written by agents, `github` implements
the operations. The HTTP client is passed in and checks every address before connecting.

Must never send the token to another host.
"""
