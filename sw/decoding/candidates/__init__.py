"""What followed which tokens, and trees and chains of candidates made of it."""
