"""Principals, and who asks whether they may."""

from moldau.node.security import (
    ANONYMOUS,
    AllowAll,
    Authorizer,
    Operation,
    PatternType,
    Principal,
    ResourceType,
    permitted_names,
)

ADA = Principal("User", "CN=ada,O=engines")


class OnlyAdaReadsOrders:
    """Lets one principal read topics whose name begins with "orders"."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        may_read = (principal, operation, resource_type) == (ADA, Operation.READ, ResourceType.TOPIC)
        return may_read and resource_name.startswith("orders")


def test_a_principal_is_written_with_its_type() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert str(ADA) == "User:CN=ada,O=engines"


def test_the_numbers_are_those_of_kafkas_access_control_lists() -> None:
    assert [Operation.READ, Operation.CLUSTER_ACTION, Operation.TWO_PHASE_COMMIT] == [3, 9, 15]
    assert [ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.USER] == [2, 5, 7]
    assert [PatternType.LITERAL, PatternType.PREFIXED] == [3, 4]


def permitted(authorizer: Authorizer, principal: Principal) -> list[str]:
    names = ["orders-2", "payments", "orders-1"]
    return permitted_names(names, authorizer, principal, "10.0.0.7", Operation.READ, ResourceType.TOPIC)


def test_the_names_that_a_principal_may_not_see_are_left_out_and_the_others_keep_their_order() -> None:
    assert permitted(OnlyAdaReadsOrders(), ADA) == ["orders-2", "orders-1"]
    assert permitted(OnlyAdaReadsOrders(), ANONYMOUS) == []


def test_everyone_sees_everything_where_all_is_allowed() -> None:
    assert permitted(AllowAll(), ANONYMOUS) == ["orders-2", "payments", "orders-1"]
