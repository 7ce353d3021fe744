"""Helpers of the contract of session stores, for our own tests of them."""

from agent_kernel.sessions.contract_tests.fixtures import ELSEWHERE, KEY, PNG, Clock, Talk, calls, result, whole_turns

__all__ = ["ELSEWHERE", "KEY", "PNG", "Clock", "Talk", "calls", "result", "whole_turns"]
