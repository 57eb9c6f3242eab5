"""Notices to the owner: always published on the feed, and sent to the configured channels (webhook, desktop).

`notifier` publishes notices and manages channels, `delivery` implements each kind of channel, `signature` signs
webhooks, and `approval_notices` sends links for pending approvals.
"""
