"""Credit of documents inside their list, and how far order and company move the score.

eRAG's label says what a document does by itself. Further lists, answered as all others, say what it does among the
others: `further_lists` (for the plan), `score_credits` (answers -> CREDITS, ORDER_UTILITY), and the analyses that are
made of those. The functions behind them are pure.
"""
