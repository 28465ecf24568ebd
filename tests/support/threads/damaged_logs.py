"""Lines that a log may have and that cannot be read."""

NEWER_KIND = b'{"v":1,"atMs":1,"type":"somethingNew","x":1}\n'
NEWER_VERSION = b'{"v":2,"atMs":1,"type":"nameChanged","name":"means something else"}\n'
DAMAGED = b'{"v":1,"atMs":1,"type":"nameChanged"}\n'
