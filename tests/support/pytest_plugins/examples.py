"""Examples of hypothesis have no deadline: the machine may be busy."""

import hypothesis

hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")
