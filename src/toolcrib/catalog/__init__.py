"""All sources of tools in one immutable snapshot, with the names they are shown under.

Above: the gate reads snapshots; doors look names up. Below: `model` alone; sources come in through the port
`model.sources.ToolSource`. Nothing here decides who may use what.
"""
