"""What the tests with clients share is asserted in modules that pytest would not look into by itself."""

import pytest

pytest.register_assert_rewrite("clients.scenarios", "clients.members.history")
