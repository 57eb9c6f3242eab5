"""The console in the browser: values in, HTML out, plus the files it needs.

Above: `server` puts it on the network, behind the guard. Below: `model`. No request, no crib and no script is known,
and everything that was not written here is escaped.
"""
